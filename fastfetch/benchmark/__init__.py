"""What `kfetch bench` measures, and how: clients in processes of their own, taking turns; runs kept as JSON; reports."""
