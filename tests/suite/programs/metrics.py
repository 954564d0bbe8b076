"""A page of metrics on standard input, read by Prometheus' own parser: JSON of its numbers by name and labels.

It fails where a histogram is not one: buckets that fall, or whose last is not the count.
"""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

numbers = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, f"{family.name} has no HELP"
    assert family.type in ("counter", "gauge", "histogram"), family
    buckets = {}
    for sample in family.samples:
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
        name = f"{sample.name}{{{labels}}}"
        assert name not in numbers, f"{name} is there twice"
        numbers[name] = sample.value
        if sample.name.endswith("_bucket"):
            series = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            buckets.setdefault(series, []).append((float(sample.labels["le"]), sample.value))
    for series, found in buckets.items():
        counts = [count for _, count in sorted(found)]
        assert counts == sorted(counts), (family.name, series, found)
        labels = ",".join(f'{name}="{value}"' for name, value in series)
        assert numbers[f"{family.name}_count{{{labels}}}"] == counts[-1], (family.name, series)

json.dump(numbers, sys.stdout)
