"""Trials on a token whose time bounds the rate.

On a token without a service time of its own, the CPUs bound the rate. The attackers are processes of the same machine,
and may use its CPUs as any process may. A rate that falls then says nothing of the daemon. So the honest user's rate is
judged on a token that takes its time for each use of a key, and does one at a time. The rate on a fast token is printed
for information.
"""

from .actors import Attackers
from .measure import observe
from .pool import Pool

# As in the tests of tests/suite/tests/faults.
SERVICE_US = 10_000
FAST_S = 1.0


def trial(bench, title, honest, attack, service_us=SERVICE_US):
    """`honest(pool)` makes the user's step, and `attack(path)` what the attackers do at this listener."""
    with Pool(bench.binaries, service_us=service_us, more="sessions = 1") as pool:
        done = observe(pool, title, honest(pool), Attackers(attack(pool.socket)), bench.seconds)
    if not bench.quick:
        with Pool(bench.binaries) as pool:
            fast = observe(pool, title, honest(pool), Attackers(attack(pool.socket)), FAST_S)
        before, during, _ = (phase.rate for phase in fast.phases)
        done.notes.append(f"on a token that is as fast as the CPUs: {before:.0f}/s before, {during:.0f}/s during")
    return done
