"""Any plain value that Python writes is read, kept and given back as the same value.

A transaction's extension takes the whole way: written by Python's pickle or msgpack,
read by the server, kept in the file as a pickle of the server's, and back.
"""

from harness.wire import Z64

VALUES = 300
NUMBERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 65_535, 65_536, 2**31, -(2**31), 2**32]
NUMBERS += [2**63 - 1, -(2**63), 2**64 - 1]


def random_value(random, depth=0):
    kind = random.randrange(11 if depth < 4 else 7)
    if kind == 0:
        return None
    if kind == 1:
        return random.choice([True, False])
    if kind == 2:
        return random.choice(NUMBERS)
    if kind == 3:
        return random.randrange(-(2 ** random.randrange(1, 63)), 2 ** random.randrange(1, 64))
    if kind == 4:
        return random.choice([0.0, -1.5, 1e300, float("inf"), random.random()])
    if kind == 5:
        return random.randbytes(random.choice([0, 1, 8, 31, 255, 256, 300]))
    if kind == 6:
        return "".join(random.choices("ab\n\\'\u00e9\u20ac\U0001f600\0", k=random.randrange(40)))
    items = [random_value(random, depth + 1) for _ in range(random.randrange(5))]
    if kind == 7:
        return tuple(items)
    if kind == 8:
        return items
    return {f"key {number}": item for number, item in enumerate(items)}


def as_tuples(value):
    """As msgpack knows it, which has one kind of sequence."""
    if isinstance(value, (list, tuple)):
        return tuple(map(as_tuples, value))
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return value


def test_values_of_python_come_back_as_they_were(start_server, encoding, wire, seeded, tmp_path):
    server = start_server(encoding=encoding)
    client, serial, written = wire(server), Z64, []
    for number in range(VALUES):
        value = random_value(seeded)
        serial = client.commit(number, [(Z64, serial, b"data")], extension={"value": value})
        written.append(value)
    history = client.call("history", Z64, VALUES)
    found = [entry["value"] for entry in history][::-1]
    expected = written if encoding == "Z5" else as_tuples(written)
    assert as_tuples(found) == as_tuples(expected)
    if encoding == "Z5":
        assert repr(found) == repr(expected)
