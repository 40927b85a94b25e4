// pg-boss: https://pgboss.io/api/workers, and the pages on constructor and queues.
//
// * batchSize 2,000 with burstWhenBatchFull: fetch again at once while batches come back full.
// * localConcurrency 2: one batch is fetched while another one is completed.
// * LISTEN/NOTIFY is switched on (useListenNotify, and notify for the queue), else idle workers poll each 0.5 s or more.
// * flowIntervalSeconds 1, the least: how often jobs are looked for whose dependencies are completed.
// * Completed jobs stay in the table until maintenance, as always.

import { databaseUrl, load, serve, startTally, chunks } from "./base.mjs"

const { PgBoss } = load("pg-boss")

const QUEUE = "noop"
const WORK = { batchSize: 2_000, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 }
const boss = new PgBoss({ connectionString: databaseUrl, useListenNotify: true, schedule: false, flowIntervalSeconds: 1 })
boss.on("error", (error) => { console.error(error); process.exit(1) })

await serve({
  async prepare () {
    await boss.start()
    await boss.createQueue(QUEUE, { notify: true })
  },
  async seed (count) {
    for (const size of chunks(count)) await boss.insert(QUEUE, Array.from({ length: size }, () => ({ data: {} })))
  },
  async join (members) {
    const refs = Array.from({ length: members }, (_, number) => `member ${number}`)
    await boss.flow([...refs.map((ref) => ({ ref, name: QUEUE })), { ref: "last", name: QUEUE, dependsOn: refs }])
  },
  async fan (members) {
    const behind = Array.from({ length: members }, (_, number) => ({ ref: `member ${number}`, name: QUEUE, dependsOn: ["first"] }))
    await boss.flow([{ ref: "first", name: QUEUE }, ...behind])
  },
  enqueue: () => boss.send(QUEUE, {}),
  async left () {
    const query = "SELECT count(*) FROM pgboss.job WHERE state < 'completed'"
    return (await boss.getDb().executeSql(query)).rows[0].count
  },
  async work () {
    const count = startTally()
    await boss.start()
    await boss.work(QUEUE, WORK, async (jobs) => { count(jobs.length) })
    process.on("SIGTERM", async () => { await boss.stop({ timeout: 5_000 }); process.exit(0) })
  }
})
