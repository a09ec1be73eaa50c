"""`eos chaos`: runs a job under faults and checks its output. The product does not import it."""
