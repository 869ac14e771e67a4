"""What is done with a chunk of batches, and the loop over chunks."""
