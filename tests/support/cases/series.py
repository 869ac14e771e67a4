"""Series in time, as programs write them."""

import femops


def field(space, time):
    return space.interpolate(lambda x: x[0] + time)


def saved(path, space, times, **options):
    with femops.io.TimeSeries(path, **options) as series:
        for time in times:
            series.save(time, space, u=field(space, time))
    return series
