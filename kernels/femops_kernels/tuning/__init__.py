"""Settings measured to be fastest: one database for hosts and devices."""
