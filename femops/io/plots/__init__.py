"""Pictures and curves as PNG files."""
