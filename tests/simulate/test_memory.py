"""Memory that processes share."""

import os

from fedmap.simulate.memory import Memory


def test_what_is_offered_is_taken_once_by_whoever_comes_first() -> None:
    memory = Memory()
    for offered in (20_000, 3, 20_000):
        memory.offer(b"".join(number.to_bytes(8, "little") for number in range(offered)))
        pipes = [os.pipe() for _ in range(3)]
        children = []
        for _, end in pipes:
            children.append(os.fork())
            if children[-1] == 0:
                with open(end, "wb") as notes:
                    while number := memory.take(8):
                        notes.write(number)
                os._exit(0)
            os.close(end)
        taken: list[int] = []
        for start, _ in pipes:
            with open(start, "rb") as notes_of_one:
                while number := notes_of_one.read(8):
                    taken.append(int.from_bytes(number, "little"))
        for child in children:
            os.waitpid(child, 0)
        assert sorted(taken) == list(range(offered))
        assert memory.take(8) == b""


def test_memory_grows_and_another_process_sees_what_was_written() -> None:
    memory = Memory()
    memory.room(10)[:5] = b"hello"
    child = os.fork()
    if child == 0:
        memory.room(1_000_000)[999_990:999_995] = b"world"
        os._exit(0)
    os.waitpid(child, 0)
    assert memory.room(10)[:5] == b"hello"
    assert memory.room(1_000_000)[999_990:999_995] == b"world"


def test_growing_bit_by_bit_under_views_takes_few_file_descriptors() -> None:
    memory = Memory()
    before = len(os.listdir("/proc/self/fd"))
    views = [memoryview(memory.room(size)) for size in range(10_000, 5_000_000, 10_000)]
    assert len(views[-1]) >= 4_990_000
    assert len(os.listdir("/proc/self/fd")) - before < 20
