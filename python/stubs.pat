# What nanobind's stubs cannot know: plain functions of the interpreter's.
Stream.__enter__:
    def __enter__(self) -> Stream:
        """Makes this the current stream of its device until the ``with`` ends."""

Stream.__exit__:
    def __exit__(self, type: object, value: object, traceback: object, /) -> None:
        """Makes the stream current again that was before."""

PinnedMemory.__buffer__:
    def __buffer__(self, flags: int, /) -> memoryview: ...

PinnedMemory.__release_buffer__:
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

