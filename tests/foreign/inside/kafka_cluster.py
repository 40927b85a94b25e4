"""The cluster of brokers that librdkafka has for tests, by Kafka's protocol: print its address, run until ended."""

import threading

from confluent_kafka import Producer

cluster = Producer({"bootstrap.servers": "replaced", "test.mock.num.brokers": 1})
[broker] = cluster.list_topics(timeout=60).brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
threading.Event().wait()
