"""Words that cannot change the privacy of a run, in names of settings and in sentences.

A name or a sentence is understood only if all of its words are known. Every other one is an entry
of the file that the user must look at, see ``unclear``.
"""

from __future__ import annotations

import re


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


SUBJECTS = words_of(
    """
    beta units
    aa about abs absolute acc accelerator accelerators accent accented accuracy acoustic act
    action activation activations activity adafactor adagrad adam adamw adapter adapters adaptor
    addopts addr address admin advanced advantage affine affinity age agnostic agreement ai aim
    alias aliases alibi align aligner alignment alignments alloc allowed alphabet alt amp amsgrad
    analytics anchor anchors android angle angles ann anneal annealing annotation annotations
    anomaly ansi api app ar arbiter arch architecture architectures archive archs area arg
    argparse args argument arguments argv around arpa artifact artifacts aspect aspp asr assets
    assigner assistant atomic att attention attentions attn attr auc audio augment augmentation
    augmentations augmenter auth author authors autoencoder autofix autoupdate aux auxiliary
    available aware aws axes axis azure backbone backend background balancer bar bart basedir
    basename bases bbox bce beam beams behavior bench benchmark bert betas bf bfloat bg bge bgr
    bias bidirectional big bin binarized binary bind binning bl black blank bleu blocking bnb
    body boi bool border bos bottleneck boundaries boundary box bpe bperoot branch branches break
    breakdown bridge browser browserslist bt btl bucket buckets buffer buffers build bundle bwd
    bylevel byte bytes bytree ca cache cached caching calc calculate call callback callbacks
    calling can capabilities caption capture card case cased cases casing cast cat catalog
    categories category causal cb cc ce cer cert certfile certificate certs cfg ch chain channel
    channels chans char character chars chat chdir check checker checkpoint checkpointer
    checkpointing checkpoints checks checksum child children choices chosen chown chunkwise ci
    cifar ckpt ckpts class classes classif classification classifier classifiers clean cleaners
    cleanup clear cli clientapp clock cloud cls cluster cmd cnn coarse coco code codebook
    codebooks codec codes codespell coding coer col collapse collate collator collector color
    colors colour cols colsample column columns com comet comma command comment comments commit
    compact compare compatible compilation compile compiled compiler complex complexity component
    components compose compute computer computing cond conda conditioning conditions conf
    confidence config configs configuration configurations conformer confusion connect connection
    connections consistent console const cont container containers content context contiguous
    contrast conv convention conversion convert convolutions convs copt copyright core cores
    corpora corpus cos cosine cost coverage cp cpp cpu cpus create created creation credentials
    criteo criterion crop css csv ct ctc ctx cu cublas cuda cudnn cur curr curve cut cver cwd
    dali dampening dashboard data database datadir dataloader dataloaders datapath dataset
    datasets datasource datasources date datefmt day days db ddconfig ddim dearmor dec decay
    decision decode decoder decoders decoding deep deepep def defaults defer define degree
    degrees delete delimiter denoiser denoising dense dependencies dependency depends deploy deps
    depths depthwise dequant dequantize desc description descriptions descriptor descriptors dest
    destdir destination detail detect detection detections detector detectron determinism
    deterministic detokenizer dev develop development device devices dictionary different
    diffusion digit digits dilation dilations dimensions dir direction directory dirichlet
    dirname dirpath dirs disc discount discriminator disk dispatch dispatcher display disposition
    distance diversity divisibility divisible dname dnn dns doc docker dockerfile docs docstring
    doctest documentation docusaurus dom domain dont down downcast download downsampler dpi
    driver dropatt dropout droppath ds dst dtype dur duration durations dyn dynamo early ec echo
    editable ee efficient elapsed element elements ema email emb embd embed embedder
    embedders embedding embeddings embeds emit emotion en enc encode encoder encoders encoding
    endpoint energy engines enhanced entities entity entropy entry entrypoint enum env
    environment environments envs eod eoi eos ephemeral err error errors esc eslint eta eval
    evals evaluate evaluation evaluations evaluator event events everything exchange exec
    executable execution executor executors exist exists expand expansion experiment experiments
    expert experts explicit ext extension extensions extract extractor fa factory falcon family
    fan fast favicon fc fdir feat feats feature features fed feed feedforward fetch ff ffn fft fg
    fid figure figures file filename filenames filepath files filt filterbank filters
    filterwarnings find fingerprint finished fit fixable fixedpoint fixtures flag flags flake
    flash flatten flex flip float floor flow flwr fmax fmin fmt fname fns focal folder folders
    folding follow font footer fork format formats formatter formatters formatting forward found
    fp fpn frame frames framework freeze freqs frozen fs fullname funcs functions fuse fused
    fuser fusion gain gan gap gate gated gathers gating gb gc gcp gelu gemma gen generate
    generation generations generator generators geo geometric get gh gid git github glob glu glue
    gmf gn gnn gp gpt gpu grafana green gres ground groupnorm growth grpc gru gt guest gui guid
    guided gumbel gym half handler handlers harness hash hatch head header headers heading heads
    health healthcheck heartbeat help hetero heterogeneity hf hflip hidden hiddens hide high
    highway hold home homepage hook hooks hop horizon horizontal horovod host hostname hosts hot
    hours hparam hparams html http https hub huggingface hydra hyperparameters hyperparams
    hysteresis iam ib ibdevs icon identifier idiom if ifname ifs iid im image imagenet images img
    implicit import imports ims inc inception incremental ind indent indexer indicator indices
    indir inductor infer inference info informational ini initialization initialize initializer
    inline inp inplace input inputs ins insert inside inspect install installed instruction int
    integration inter interactive intercept interface interleave intermediate internal interop
    interpolate interpolation interpreter intra inv inverse iou ip ipc isolation isort issue ite
    iterable itr iusertag java javascript jit job jobs joined js json jsx jupyter kaldi kappa
    kdim kenlm keras kernel kernels keypoint keypoints keys keywords kl known kv kw kwargs l1 lab
    label labels lamb lambda lamda lang langs language languages large latency latent launcher
    layer layerdrop layernorm layers layerscale layout lazy lc ld lda leaf learn learnable
    learning legacy legend lengths lenpen lens letters lexicon lib libraries library librispeech
    libsm license liger light lightning lin line linear lines linewidth link links lint linux
    lion lite live liveness lj llama llm lm ln load loader loaders loading loc locale location
    locked lockfile loftq log logdir logfile logger loggers logging login logit logits loglevel
    logo logprobs logs long lookahead lora loss lossconfig losses low lowercase lowrank lr lrs ls
    lscpu lstm mae mag magic mainfile major make mamba manager manifest manifests mappings maps
    margin markdown markers master match matcher math matplotlib maximize mb mbart mca md mdl
    megatron mel mels mem membind memory mesh message messages meta metadata metric metrics mha
    mid milestones minimize minutes minversion mistral mixed ml mlflow mlm mlp mm mnist mobile
    mod modality model models modulation module modules moe momentum monitor monitoring mount
    mounts move mpu mrope ms msd mse msg mt mtp multilang multimodal multiprocessing multitask my
    mypy mysql name named names namespace nametag nav nbest nccl neck neg negative nemo neptune
    nesterov net network networks neurons newline newlines nextn ngram nightly niid nms nn
    nodelist noheader nonlinearity nope norecursedirs normal normalization normalize note
    notebook notes np npy nthread numeric numerical numerics numpy nums nvidia obj object
    objective objects obs offload offloading offset ok omegaconf omp ompi onnx oov open openib
    openssl operator opset opt optim optimiser optimization optimize optimizer optimizers option
    optional options opts opus oracle org organization orig os otel out outdir outfile output
    outputs outs oversubscribe overwrite owner package packages pad padded padding page pages
    palette pandas panoptic paper para param parameter parameters params parentheses parquet
    parse parser partition partitions password patch patches path paths patience pattern patterns
    peft penalty perf performance permalink permissions perplexity persistence persistent phn
    phoneme phones pickle pid pin pinned pip pipeline pitch pix pixel pixels pkeep pkg plateau
    platform plot plots plugin plugins pod poetry point points poll poly polyak pool pooler
    pooling port ports pos posemb position positional positions positive postfix postgres postnet
    ppl pre prec precision precompute pred predict prediction predictor prefetch prefix prenet
    prep prepare prepared prepend preprocess preprocessed preprocessing preserve pretrained
    pretty preview primary print prismjs probe problem processing processor product prof profile
    profiler profiling program progress progressbar proj project projector prometheus prompt
    prompter prompts prop properties property proposals protect proto provider proximal proxy prs
    pruned ps pt publisher pull punc push pw py pydocstyle pyi pylint pytest python
    pythondontwritebytecode pythonioencoding pythonpath pythonunbuffered pytorch qa qk qkv
    quadratic quality quant quantization question queue quote qwen r ram rank rawtag ray rcfile
    rdzv react read reader readiness readme readout ready reason reasoning reassignment rec
    recall receiver recommends reconstruction recorder recoverables red redirect redis reentrant
    ref reference references refresh reg regex region registry regression regular regularization
    regularizer reinstall rel relative relu rem remark remarks remat remode remote repo report
    reporting repos repository representation reprob req request require required requirement
    requirements requires res resblock reservations reshape reshard residual resize resized
    resnet resnets resolution resolutions resolve resource resources response result results
    retinanet retrieval retriever return rev review revision reward rewards rgb ring rl rm rms
    rmse rmsnorm rmsprop rng rnn rnnt roi role roles rollout rollouts root rope rotary rotate
    rotation rouge route routed router routing rpc rpn rs rslora ruff runner runtime safe
    safetensors safety sagemaker save saved saving sbatch scan scatter scenario sched scheduler
    schedulers scheduling schema scikit scipy scopes score scorers scores scoring scrape scratch
    script scripts se sec second seconds secrets secs section sections seed seg segm segment
    segmentation semantic semi sentence sep separable separation separator seq sequence
    serialization series serve serverapp service services serving session setting settings
    setuptools sex sfractag sg sgd sha shape shapes shear shell shift shm short shrink si sided
    sigmoid signature signing sil silence silent silu similarity simple simplify simulation sink
    sk skew skills skipinit sl sleep slicing sliding slope slow slr slurm small smoothing
    smoothness smplseed snr social socket sockets softcap softcapping softmax solution sorting
    sortish sp space spaces span spark spatial spec special specs spectral spectrum speech speed
    sphinx spk spkrs splicing split splits splitter spltseed sql sr src ssd ssl ssm st stability
    stable stack stacked stacks staging started startup state statistic status stderr stdin stem
    stft stopping storage store str strict stride strides string strip structure structured stubs
    study stuff subdir subgraph submission submit submitit submodules subnet success sudo suffix
    suffixes suite summaries summary sup supervision support supported swa swiglu swish symbol
    symbols symmetric symmetry synth synthesizer sys system t tab table tacotron tag tags
    tailwindcss tanh tar targets task tasks tb tdnn team temp temperature template temporal
    tensor tensorboard tensorboardx tensorflow tensorrt tensors term terms test testing testpaths
    testpref tests testset text texture tf tfractag tgt th theme theta thinking thread threads
    throughput tie tied tile time timeout timeouts timescale timestamp timestep timesteps timing
    title tls tmp tmpdir toc tok token tokenization tokenize tokenizer tokenizers tokens
    tolerations toml tool tools topic topology torch torchscript torchvision tower tp tpu tqdm
    trace traces tracker tracking trackio trailing trainable trainloader trainpref trans
    transcript transcripts transducer transform transformations transformer transformers
    transforms translate translation treatment trees triton trt trunk truth ts tsv tta ttl tts
    tuple tv txt ty tying typescript ucx ui ulimit unet unfrozen unicode unk unknown unmasked
    unseen untie untyped up updated updown upgrade uppercase upscale uri url urls usage username
    util utilization utils utt uv vad vae valid validate validation validpref variables vars vdim
    vec vector venv ver verbose verbosity verbs verification verify version versions vertical
    vertices video view visible vision vit viz vllm vlm vocab vocabulary vocoder volume volumes
    vq vt wa walk wall walltime wandb warmup warn warning warnings warp watch wav waveform
    waveglow wavs wd web wer wheel wide win windows word words work workdir worker workers
    working workload workspace wrap wrapper wrd write writer wt xavier xdist xformers xgb xgboost
    xla xvector yaml yapf yes zip zone
    """
)
"""Words of settings that release no data and draw no unit: the subject of a name."""

QUALIFIERS = words_of(
    """
    order
    reported
    a add aggregator all allow alpha always an and any apply array as at auto automatic average
    avg base batch batches begin best beta block blocks bottom bound bounds by chunk client coef
    coefficient collaborator common count counts current custom default depth dict dim dimension
    dims disable disabled do each enable enabled enables end epoch epochs every exponent extra
    factor false federated field fields final first fl fn for force fraction freq frequency from
    func function gamma global group groups has height id ids idx impl implementation in index
    init initial interval intervals is item items iter iteration iterations iters join keep key
    kind kinds last launch left len length level levels limit limits list local main manual map
    mapping max maximum mean method methods min minimum mode modes multi n new next no none nr
    null num number of off old on op ops or origin other per percent period policy power previous
    prob probs protocol random range rate ratio reduction right round rounds said sample samples
    scale scaled scaling schedule server set shared should show size sizes source sources start
    step steps stop strategies strategy strength style sum the threshold thresholds to top total
    train trained trainer training true type types uid use used using uuid val value values
    weight weights where width window with without x y
    """
)
"""Words that only complete a name. A name of these alone is not understood."""

SHOWN = words_of(
    """
    annealing checkpoint checkpoints ckpt cosine decoding dev display early ema eval evaluate
    evaluation generate generation heartbeat learning log logger logging logs lr metric metrics
    milestones mlflow patience plot prefetch print profile profiler report save saving scheduler
    schedulers stopping swa tensorboard test testing timeout val valid validation vis viz wandb
    warmup
    """
)
"""Words of parts whose steps, epochs and batches are not those of the private run."""

COUNTING = words_of(
    """
    batch batches epoch epochs iter iteration iterations iters round rounds sample samples step
    steps
    """
)
"""Words that are harmless only next to one of ``SHOWN``."""

OF_DATA = words_of("init initializer initialization transform transforms normalize")
"""Words of the start of a model, and of the preparation of its data."""

FUNCTION = words_of(
    """
    a about after all also an and answer answers any are as at be before between both by can
    cross do does during e eg etc example feel for free from g generated had has have he here how
    i ie if in into is it its may must need needs of on once one onto or our py see set sets she
    should simulated since so than that the their then there these they this those to use used
    uses using via vs we what when where which while who whose will with would you your
    """
)
"""Plain words of English; negations and changes are not here."""

PROGRESS = words_of(
    """
    added adds answered app attached available avg back began begin begins begun bool build
    building builds built call called calls class compiled complete completed completes configure
    configured connect connected connecting copied copy create created creates creating def
    describe describes dict distributed divided done downloaded drawn elapsed enabled error
    failures falling fed finish finished finishes finishing fit float gave give gives group
    history import imports info initialised initialize initialized initializes initializing int
    keras lambda list listening load loaded loading loads main median np numpy parameter print
    printed printout prints process reach reached reaches read reads receive received report
    reported reports result results return returned returns root run running save saved saves
    saving selected self show shown shows side simulation start started starting starts str
    submitted synced syncing train trains true tuned tuple uses using verified wait waiting warn
    warning wrapper write writes written
    """
)
"""Words for the actions of a program."""

NEUTRAL = words_of(
    """
    algorithm uniformwithreplacementsampler
    account accountant accountants accounting achieved add adjacency adjacent aggregate
    aggregated aggregation alphas attach batch batches bound budget c cdp central client clients
    clip clipped clipper clipping clips cohort compute config configuration contribution
    contributions count d data delta deviation differential differentially dp dpadam dpfedavg
    dpsgd e engine epoch epochs eps epsilon example examples expected fedavg federated final
    fixedclipping fl flat flower flwr gaussian gdp get global grad gradient gradients grads
    guarantee guarantees hyperparameters it iter iteration iterations iters jax l2 ldp level
    loader logical lot make max mechanism microbatch microbatches minibatch model moments
    multiplier n neighboring neighbors neighbouring noise norm normal norms num number opacus
    optimizer order orders parameters participant participants perround pfl physical pld poisson
    population privacy private privately probability prv pytorch q rate rdp record records
    relation remove renyi rng round rounds run s sample sampled samples sampling section secure
    server settings sgd sigma size spent standard std stddev step steps strategy sum t target
    tensorflow tf tff threshold torch total train trained training unit update updates used user
    users value values wrap wraps z
    """
)
"""Words of privacy that restate settings; their numbers must be those of the file."""

SUSPECT = words_of(
    """
    adapter adapters always annealing augment augmentation augmentations auxiliary average avg
    begin best bias biases cache cached chosen compress compression custom decay decayed
    deprecated different disable disabled down drop dropout dynamic each early effect ema
    embedding embeddings end estimate estimated eta every expand expanded extra factor first
    fraction freeze frozen gated half head heads hot init initial instead last layer layers left
    legacy limit limits local manual mean median mixed neck new next none off old only optional
    other others out over patience per percent placeholder power pretrained previous quantile
    quantiles quantization quantize random ratio reduced reducing relative remote replaced reset
    same scale scaled scaling schedule scheduled scheduler seed seeds shared sparse start stop
    stopping strength temporal test tests under unknown unused up val valid validation various
    varying warmup weight weights without
    """
)
"""Known words of names that may change the meaning of a sentence about privacy."""

HARD = words_of(
    """
    always extra half last local new only per pretrained previous reduced reducing same seeds up
    """
)
"""Words that may change the meaning of any sentence about a run."""

NEGATIONS = words_of("cannot false neither never no non none nor not null off without")
NEGATIONS |= {"nothing"}
"""Words that turn a sentence around."""

STRONG = re.compile(
    r"(?:nois|sigma|stddev|varian|unclip|clip|ldp|cdp|dp|priv|nonpriv|unpriv|differential|epsilon"
    r"|budget|account|rdp|secur|secagg|statistic|sampl|resampl|subsampl|oversampl|upsampl|poisson|replac"
    r"|microbatch|lot$|lots$|batchnorm|cohort|adjacen|neighbo|gaussian|laplac|releas|publish|expos"
    r"|aggregat|contribut|rausch|bruit|ruido|rumore)|(?:eps|delta|std|clients|users)$"
)
"""Beginnings of words that make a sentence one about the privacy of a run."""

WEAK = re.compile(
    r"(?:step|epoch|round|iter|rerun|run|ran|restart|resum|continu|crash|abort|interrupt|preempt"
    r"|requeue|truncat|rollback|retrain|pretrain|finetun|again|twice|thrice|repeat|trial|seeds|sweep"
    r"|tuned$|tuning$|best$|search|grid$|fold|ensembl|bagg|daily|weekly|nightly|hourly|monthly|cron|attempt|tried"
    r"|batch|draw|drew|shuffl|permut|duplic|balanc|sequential|percent"
    r"|user|client|patient|person|people|household|customer|record|example|participant|author$"
    r"|authors$|speaker|accum|worldsize|nodes|gpus|devices|processes|population|cohort"
    r"|raw$|public|models$|debug|dry$|smoke|disabl|bypass|overrid|overwr|ignor|skip|exclud|omit|off$"
    r"|without|plain|vanilla|baseline|cleartext|mixup|cutmix|teacher|distill|contrastive|gradient"
    r"|grad$|grads$|weighted|kein|ohne|nicht|sans$|sin$|senza|zero|actual|real$|wrong|fixme"
    r"|placeholder|ablation|differ|decays|halv|half|doubl|another|estimat|instead|grew|upload"
    r"|unbounded|norms$|stopped|stops)"
)
"""Beginnings of words that make a sentence one about a run."""
