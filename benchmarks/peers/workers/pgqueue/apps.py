from django.apps import AppConfig


class PeerConfig(AppConfig):
    name = "benchmarks.peers.workers.pgqueue"
    label = "peer"  # pgqueue is that of the queue
