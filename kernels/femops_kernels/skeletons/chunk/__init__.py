"""Work on a chunk of batches, and the loop over chunks."""
