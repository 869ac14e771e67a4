"""What tests of this folder share: one thread, as they do many small products."""

from support import fixtures

one_thread = fixtures.one_thread
