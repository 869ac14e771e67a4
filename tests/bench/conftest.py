"""What tests of benchmarks share."""

from support import fixtures

small_limits = fixtures.small_limits
