"""Parts of bench_side_data.py: a mesh of processes whose model gives side data in bulk."""
