"""One ``pgqueue_worker`` command: the supervisor, its processes, and in each a consumer and slots."""
