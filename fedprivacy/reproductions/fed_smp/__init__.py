"""The tables and figures of Fed-SMP (Hu, Guo and Gong)."""
