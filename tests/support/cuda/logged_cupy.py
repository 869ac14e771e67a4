"""What CuPy's streams and events are asked for, in order."""

from types import SimpleNamespace


class LoggedCuda:
    """Notes what waits for what: (who, "waits for" or "records", an event)."""

    def __init__(self):
        self.log = []
        self.current = self.stream("kernels", 0)

    def stream(self, name, ptr):
        return SimpleNamespace(
            name=name,
            ptr=ptr,
            wait_event=lambda event: self.log.append((name, "waits for", event.name)),
        )

    def Stream(self, *, non_blocking, priority=0):
        assert non_blocking
        return self.stream("messages" if priority < 0 else "copies", 99)

    def Event(self, *, disable_timing):
        assert disable_timing
        event = SimpleNamespace(name=None)

        def record(stream):
            event.name = f"{stream.name} {len(self.log)}"
            self.log.append((stream.name, "records", event.name))

        event.record = record
        event.synchronize = lambda: self.log.append(("the host", "waits for", event.name))
        return event

    def get_current_stream(self):
        return self.current
