"""Checks of arguments, hints, available memory and HTML, which the other packages share."""
