"""Field names of `config.json`: which of them mean the same, which have no part in cost.

A field that a reader does not ask for and that is not listed here is reported, never ignored in
silence: it may be the one that changes how a model costs.
"""

from __future__ import annotations

from typing import Final

# One meaning, several names. Names that stand side by side must agree.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_key_value_heads": ("num_key_value_heads", "num_attention_groups", "num_kv_heads"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "n_experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "experts_per_token": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_top_k",
    ),
    "n_shared_experts": ("n_shared_experts", "num_shared_experts"),
    "expert_groups": ("n_group", "num_expert_group"),
    "latent_width": ("routed_expert_hidden_size", "moe_latent_size"),
    "shared_width": (
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        "moe_shared_expert_intermediate_size",
    ),
    "sliding_window": ("sliding_window", "sliding_window_size"),
    "state_dtype": ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
    "dtype": ("dtype", "torch_dtype"),
    "output_gate": ("attn_output_gate", "attention_output_gate"),
}

# Fields without a part in cost, by reason.
_IDENTITY: Final = """
    _name_or_path architectures auto_map model_type transformers_version source name aliases
    finetuning_task task_specific_params tokenizer_class prefix problem_type is_decoder
    is_encoder_decoder id2label label2id pruned_heads torchscript tf_legacy_loss use_bfloat16
    return_dict return_dict_in_generate output_attentions output_hidden_states output_scores
    output_router_logits num_logits_to_keep num_reward_heads use_cache _attn_implementation
    attn_implementation gradient_checkpointing ep_size pretraining_tp language_model_only
    add_cross_attention cross_attention_hidden_size decoder_start_token_id tie_encoder_decoder
    chunk_size_feed_forward torch_dtype dtype initial_context_length max_sequence_length
    max_seq_len model_version for_llm_compressor use_rope_layers
"""
_TOKENS: Final = """
    bos_token_id eos_token_id pad_token_id sep_token_id audio_token_id boa_token_id boi_token_id
    eoa_token_id eoa_token_index eoi_token_id image_token_id image_token_index image_placeholder
    ignore_index media_placeholder_token_id video_placeholder video_token_id video_token_index
    vision_end_token_id vision_start_token_id mask_token_id
"""
_SAMPLING: Final = """
    bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping
    encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id
    forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences remove_invalid_values repetition_penalty suppress_tokens
    temperature top_k top_p typical_p max_new_tokens
"""
_TRAINING: Final = """
    attention_dropout hidden_dropout embd_pdrop resid_pdrop dropout classifier_dropout
    initializer_range rescale_prenorm_residual residual_in_fp32 aux_loss_alpha seq_aux
    router_aux_loss_coef router_jitter_noise time_step_floor time_step_limit time_step_max
    time_step_min time_step_rank moe_aux_loss_coef router_z_loss_coef mamba_dt_init
    attention_probs_dropout_prob hidden_dropout_prob
"""
_ELEMENT_WISE: Final = """
    rms_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps hc_eps hc_sinkhorn_iters hidden_act
    hidden_activation mamba_hidden_act activation_situ_beta activation_situ_linear_beta
    swiglu_alpha swiglu_limit swiglu_limits swiglu_limits_shared zero_centered attention_value_scale
    final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar attn_scale
    attn_temperature_tuning floor_scale norm_topk_prob norm_expert_weight
    routed_scaling_factor moe_renormalize
    moe_router_activation_func moe_router_scaling_factor moe_router_dtype need_fp32_gate
    scoring_func topk_method use_grouped_topk router_dtype gate_lower_bound
    latent_moe_use_norm use_gemma_norm output_gate_type logits_scaling embedding_multiplier
    attention_multiplier residual_multiplier moe_shared_expert_overlap use_mamba_kernels
    hidden_size_per_layer_input_scale sparse_score_type moe_router_bias
"""
_ROTARY: Final = """
    rope_scaling rope_theta rope_parameters rope_interleave rope_local_base_freq rope_ratio
    partial_rotary_factor partial_rotary_factors rotary_dim rotary_pct use_mrope swa_rope_theta
    compress_rope_theta indexer_rope_interleave original_max_position_embeddings
    mla_use_nope yarn_only_types nope_layers global_rope_theta
"""
_OTHER_TOWERS: Final = """
    vision_config audio_config video_config visual_config image_grid_pinpoints image_seq_length
    img_token_compression_config multimodal_projector_bias process_image_mode projector_hidden_act
    projector_hidden_size use_unified_vision_chunk vision_feature_layer
    vision_feature_select_strategy vision_soft_tokens_per_image vision_select_layer
    use_bidirectional_attention understand_projector_stride audio_soft_tokens_per_image
    vision_aspect_ratio image_token_len projector_bias
"""
_QUANTIZATION: Final = """
    activation_scheme fmt scale_fmt producer format quantization_status dynamic observer
    observer_kwargs actorder strategy scale_dtype zp_dtype global_compression_ratio
    moe_quant_algo version backend desc_act damp_percent true_sequential
    static_groups quant_type checkpoint_format model_file_base_name model_name_or_path
    output_activations sparsity_config transform_config quant_method is_marlin_format lm_head
    bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_quant_storage _load_in_8bit _load_in_4bit
    llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight llm_int8_threshold meta
    autoround_version
"""
IRRELEVANT: Final[frozenset[str]] = frozenset(
    " ".join(
        (_IDENTITY, _TOKENS, _SAMPLING, _TRAINING, _ELEMENT_WISE, _ROTARY, _OTHER_TOWERS)
    ).split()
)
IRRELEVANT_TO_FORMAT: Final[frozenset[str]] = frozenset(_QUANTIZATION.split())
