//! A token in memory, with injected faults and latencies.
