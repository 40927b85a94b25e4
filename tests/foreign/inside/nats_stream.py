"""The stream "orders" of a NATS server: print each event as it arrives, or those that it has stored.

An event arrives each time it is published, also when the stream does not store it because it has it already.
"""

import asyncio
import json
import sys

import nats


def tell(subject: str, data: bytes) -> None:
    print(json.dumps([subject, json.loads(data)]), flush=True)


async def arriving(client: nats.NATS) -> None:
    async def arrived(message: nats.aio.msg.Msg) -> None:
        tell(message.subject, message.data)

    await client.subscribe("orders.>", cb=arrived)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def stored(client: nats.NATS) -> None:
    stream = client.jetstream()
    info = await stream.stream_info("orders")
    for number in range(1, info.state.last_seq + 1):
        message = await stream.get_msg("orders", number)
        tell(message.subject, message.data)


async def main(url: str, what: str) -> None:
    client = await nats.connect(url)
    await {"arriving": arriving, "stored": stored}[what](client)
    await client.close()


asyncio.run(main(*sys.argv[1:]))
