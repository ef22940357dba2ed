"""Everything that reads what others wrote, on damaged files: whatever the bytes are, the answer is
a value or one FedmapError. `make fuzz` tries many more of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.targets import TARGETS, TOKENS, new_folder, survives

# where a damage is, as a share of the file; both ends, where headers are, are tried more often
places = st.one_of(st.floats(0, 1), st.floats(0, 0.02), st.floats(0.98, 1))
damages = st.one_of(
    st.tuples(st.just("cut"), places, st.just(b"")),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=8)),
    st.tuples(st.sampled_from(["insert", "overwrite"]), places, st.sampled_from(TOKENS)),
    st.tuples(st.just("flip"), places, st.binary(min_size=1, max_size=1)),
    st.tuples(st.just("repeat"), places, st.just(b"")),
)
Damage = tuple[str, float, bytes]


def damaged(content: bytes, how: str, where: float, what: bytes) -> bytes:
    at = int(where * len(content))
    if how == "cut":
        return content[:at]
    if how == "insert":
        return content[:at] + what + content[at:]
    if how == "overwrite":
        return content[:at] + what + content[at + len(what) :]
    if how == "repeat":
        return content + content[at:]
    flipped = bytes(a ^ b for a, b in zip(content[at : at + 1], what, strict=False))
    return content[:at] + flipped + content[at + 1 :]


@pytest.mark.parametrize("name", TARGETS)
def test_the_undamaged_file_is_read(name: str) -> None:
    target = TARGETS[name]
    with new_folder() as folder:
        path = folder / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(target.seeds()[0])
        target.feed(path)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=50)
@given(st.data(), st.lists(damages, min_size=1, max_size=3))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    name: str, data: st.DataObject, changes: list[Damage]
) -> None:
    content = data.draw(st.sampled_from(TARGETS[name].seeds()))
    for change in changes:
        content = damaged(content, *change)
    survives(name, content)


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=10)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_sentence(name: str, content: bytes) -> None:
    survives(name, content)


NOTE, TABLE, ORDER = (
    TARGETS[name].seeds()[0] for name in ("personal model", "parquet", "flower order")
)
FOUND = {
    "pyarrow ended the process": (
        "parquet",
        TABLE.replace(b"\x25\x02\x18\x01a", b"\x25\x0a\x18\x01a"),
    ),
    "nobody has this home folder": ("settings toml", b'data = "csv:~nobody-of-this-name/a"'),
    "all memory for names": ("flower order", ORDER.replace(b'"sites":2', b'"sites":2000000000000')),
    "the file stayed open": ("rows to ask npz", b"PK\x03\x04"),
    "numpy warned of a number": ("rows to ask csv", b"a,b\n1,2\n3,-4e50\n"),
    "no file in the sentence": ("personal model", NOTE.replace(b'alpha\\": 0', b'alpha\\": 9')),
}


@pytest.mark.parametrize(("name", "content"), FOUND.values(), ids=FOUND)
def test_what_was_found_once_is_not_found_again(name: str, content: bytes) -> None:
    survives(name, content)
