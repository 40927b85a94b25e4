// The two roles of a Node.js peer's process, and its tally; what base.py and tally.py are for Python.

import { createRequire } from "node:module"
import { openSync, writeSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"

const { PEERS_DATABASE_URL, PEERS_TALLY, PEERS_NODE_FOLDER } = process.env
const CHUNK = 5_000
const FLUSH_MS = 2

export const databaseUrl = PEERS_DATABASE_URL

// Packages are installed beside the virtual environments, not above this file.
export const load = createRequire(join(PEERS_NODE_FOLDER, "package.json"))

export async function serve (peer) {
  const role = process.argv[2]
  await { work: peer.work, control: () => control(peer) }[role]()
}

// Answers each line of the standard input with one number, until it ends.
async function control (peer) {
  const orders = {
    prepare: peer.prepare,
    seed: (count) => peer.seed(Number(count)),
    join: (members) => peer.join(Number(members)),
    fan: (members) => peer.fan(Number(members)),
    enqueue: async () => { await peer.enqueue(); return process.hrtime.bigint() },
    left: peer.left
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const [order, ...args] = line.split(" ")
    console.log(String((await orders[order](...args)) || 0))
  }
  process.exit(0)
}

export function chunks (count) {
  return Array.from({ length: Math.ceil(count / CHUNK) }, (_, i) => Math.min(CHUNK, count - i * CHUNK))
}

// Node.js cannot map a file into memory: the two numbers are written every FLUSH_MS milliseconds if they changed.
export function startTally () {
  const cells = new BigUint64Array(2)
  const file = openSync(join(PEERS_TALLY, String(process.pid)), "w")
  let calls = 0
  let latest = 0n
  const flush = () => {
    if (cells[0] === BigInt(calls)) return
    cells[0] = BigInt(calls)
    cells[1] = latest
    writeSync(file, cells, 0, 16, 0)
  }
  setInterval(flush, FLUSH_MS).unref()
  process.on("exit", flush)
  return (count = 1) => { latest = process.hrtime.bigint(); calls += count }
}
