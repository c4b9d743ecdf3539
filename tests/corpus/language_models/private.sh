accelerate launch train.py \
  --model_name gpt2 \
  --target_epsilon 8 \
  --per_sample_max_grad_norm 1.0 \
  --target_delta 1e-6 \
  --num_train_epochs 3
