"""The report of `zodb analyze` as comma-separated values, counted here from ZODB's iteration."""

from ZODB.utils import get_pickle_metadata

HEADINGS = "Class Name,T.Count,T.Bytes,Pct,AvgSize,C.Count,C.Bytes,O.Count,O.Bytes"


def analyzed(storage, start=None, stop=None):
    classes, sizes, rows = {}, {}, {}
    for transaction in storage.iterator(start, stop):
        for record in transaction:
            if record.data is None:
                continue
            oid, size = record.oid, len(record.data)
            if oid not in classes:
                classes[oid] = ".".join(get_pickle_metadata(record.data))
            row = rows.setdefault(classes[oid], [0, 0, 0, 0])
            old = sizes.get(oid)
            row[0] += 1
            row[1] += size
            row[2] += old is None
            row[3] += size - (old or 0)
            sizes[oid] = size
    total = sum(row[1] for row in rows.values())
    lines = [HEADINGS]
    for name, (count, size, current, current_size) in sorted(
        rows.items(), key=lambda item: item[1][1]
    ):
        share, mean = size * 100.0 / total, size / count
        lines.append(
            f"{name},{count},{size},{share:f}%,{mean:f},{current},{current_size},"
            f"{count - current},{size - current_size}"
        )
    return "\n".join(lines) + "\n"
