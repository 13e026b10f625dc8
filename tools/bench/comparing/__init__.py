"""The parts of tools/bench/compare."""
