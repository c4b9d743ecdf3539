python train.py --noise-multiplier 1.1 --max-grad-norm 1.0 --steps 1000 --sample-rate 0.01
python train.py --noise-multiplier 0.5 --max-grad-norm 1.0 --steps 1000 --sample-rate 0.01
