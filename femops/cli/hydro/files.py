"""Files that a run writes: series, checkpoints, pictures, movies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from femops.cli.output import Output, check_files

if TYPE_CHECKING:
    import femops
    from femops.hydro import Simulation, Snapshot
    from femops.parallel import Communicator


@final
class Files:
    """Writes the files of a run when they are due. All methods are collective."""

    def __init__(self, given: dict[str, Any], comm: Communicator) -> None:
        from femops.parallel import check

        self._given, self._comm = given, comm
        self._series: femops.io.TimeSeries | None = None
        self._frames: list[tuple[str, Any, Any]] = []
        suffixes = {"save": ".pvd", "movie": ".gif", "picture": ".png", "checkpoint": ".state"}
        with check(comm):
            check_files(*((given[name], suffix) for name, suffix in suffixes.items()))

    def begin(self, run: Simulation) -> None:
        """Write the initial fields, unless an earlier run has written them.

        After a restart the steps of a series that are later than the checkpoint are removed: this
        run writes its own, which other options or another number of ranks may change.
        """
        import femops

        if self._given["save"] is not None:
            existing: Any = "continue" if self._given["restart"] else "replace"
            until = run.t if self._given["restart"] else None
            path = self._given["save"]
            self._series = femops.io.TimeSeries(path, existing, self._comm, until=until)
        if self._series is None or not self._series.times or self._is_due(run):
            self._add(run)

    def _is_due(self, run: Simulation) -> bool:
        """True if the series and the movie have the present step."""
        return bool(run.steps % self._given["every"] == 0)

    def after_step(self, run: Simulation) -> None:
        """Write the files that are due after a step."""
        from femops.hydro import save_run

        if self._is_due(run):
            self._add(run)
        if self._given["checkpoint"] and run.steps % self._given["checkpoint_every"] == 0:
            save_run(self._given["checkpoint"], run)

    def _add(self, run: Simulation) -> None:
        """Add the fields to series and movie, unless these have the present time already."""
        from femops.hydro import Snapshot

        series, title = self._series, f"t = {run.t:.4g}"
        due = series is not None and (not series.times or series.times[-1] < run.t)
        frame = self._given["movie"] is not None
        if due or frame:
            fields = Snapshot.of(run)
            if due and series is not None:
                fields.save(series, run.t)
            if frame and (not self._frames or self._frames[-1][0] != title):
                self._frames.append((title, fields.density.space, fields.density.vector))

    def save_last(self, run: Simulation) -> Path:
        """Write the last good state of a run that cannot continue. Return the file."""
        from femops.hydro import save_run

        default = Path(f"{run.equations.problem.name}-last.state")
        return save_run(self._given["checkpoint"] or default, run)

    def finish(self, output: Output, run: Simulation) -> None:
        """Write the files that are due at the end, and print the names of all files."""
        import femops
        from femops.hydro import Snapshot, save_run

        self._add(run)
        if self._series is not None:
            self._series.close()
            output.say(f"wrote {self._series.path}, {len(self._series.times)} steps")
        if self._given["checkpoint"] is not None:
            output.say(f"wrote {save_run(self._given['checkpoint'], run)}")
        if self._given["movie"] is not None:
            drawn = femops.io.movie(self._given["movie"], self._frames, name="density")
            output.say(f"wrote {drawn}, {len(self._frames)} frames")
        if self._given["picture"] is not None:
            _draw(output, self._given["picture"], Snapshot.of(run), f"t = {run.t:.4g}")


def _draw(output: Output, path: Path, fields: Snapshot, title: str) -> None:
    """Draw the density to a file, and the velocity to a second file with a similar name."""
    import femops

    beside = path.with_name(f"{path.stem}-velocity{path.suffix}")
    for target, name in ((path, "density"), (beside, "velocity")):
        field = getattr(fields, name)
        drawn = femops.io.picture(target, field.space, field.vector, name=name, title=title)
        output.say(f"wrote {drawn}")
