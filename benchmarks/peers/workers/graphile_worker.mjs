// Graphile Worker: https://worker.graphile.org/docs/performance
//
// * The settings of that page's own figures: concurrentJobs 24, maxPoolSize 25, completeJobBatchDelay 0,
//   failJobBatchDelay 0; but localQueue.size 2,000 in place of 500, which is faster here with one process and with two.
// * Jobs are added with add_jobs in bulk. Finished jobs are deleted, as always.

import { databaseUrl, load, serve, startTally, chunks } from "./base.mjs"

const { Logger, makeWorkerUtils, run } = load("graphile-worker")

const connection = { connectionString: databaseUrl, logger: new Logger(() => () => {}) }
const JOB = { identifier: "noop", payload: {} }
let utils

await serve({
  async prepare () {
    utils = await makeWorkerUtils(connection)
    await utils.migrate()
  },
  async seed (count) {
    for (const size of chunks(count)) await utils.addJobs(Array(size).fill(JOB))
  },
  enqueue: () => utils.addJob("noop", {}),
  async left () {
    const query = "SELECT count(*) FROM graphile_worker.jobs"
    return (await utils.withPgClient((client) => client.query(query))).rows[0].count
  },
  async work () {
    const count = startTally()
    await run({
      ...connection,
      preset: {
        worker: {
          concurrentJobs: 24,
          maxPoolSize: 25,
          localQueue: { size: 2_000 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0
        }
      },
      taskList: { noop: () => count() }
    })
  }
})
