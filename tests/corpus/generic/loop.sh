for s in 0.5 1.0 2.0; do
  python train.py --noise-multiplier $s --max-grad-norm 1.0 --steps 1000 --sample-rate 0.01
done
