#!/bin/bash
EPSILON=8
BATCH=64
torchrun train.py --epochs 3 --priv-epsilon $EPSILON --batch-size $BATCH --priv-max-grad-norm 0.1
