#!/bin/bash
python x.py --sigma 1.0 --sample-rate 0.01 --steps 1000
