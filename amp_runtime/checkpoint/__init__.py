"""What a run goes on from, on disk: shards of nodes, a manifest, and the folder of a run's."""
