"""Published speeds that come with Horae, each with its source. Nothing here was estimated.

The unit is steps per second: samples per second, as published, divided by the batch size that the model's name gives.
Where that is one GPU's batch (weak scaling), k GPUs make k such steps at a time, so that the steps of a job are the
same amount of work with any gang; where it is the global batch (strong scaling) they are in any case. No training speed
of a T4 was found in a source of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from horae.model.cluster import CLUSTER, NODE
from horae.model.shapes import Shape
from horae.model.speeds import Measurement

_TENSORFLOW = "TensorFlow Benchmarks page, May 2017, training with synthetic data"
_EXAMPLES = "NVIDIA DeepLearningExamples"
_RESNET = f"{_EXAMPLES}, TensorFlow ResNet-50 v1.5 README, training performance, container 20.06 (2020)"
_SSD = f"{_EXAMPLES}, PyTorch SSD300 README, training performance, container 22.10 (2022)"
_NCF = f"{_EXAMPLES}, PyTorch NCF README, training performance, container 21.04 (2021)"
_BERT = f"{_EXAMPLES}, PyTorch BERT README, training performance, container 19.07 (2019), DGX-1 16 GB"
_AUTOMODEL = "NVIDIA NeMo AutoModel performance summary, pre-training, DGX-H100 BF16 (2026)"


class _Published(NamedTuple):
    model: str
    accelerator: str
    level: str
    samples_per_step: float
    source: str
    samples_per_second: Mapping[int, float]  # by GPUs

    def rows(self) -> list[Measurement]:
        return [
            Measurement(
                self.model, Shape(self.accelerator, gpus, self.level), samples / self.samples_per_step, self.source
            )
            for gpus, samples in self.samples_per_second.items()
        ]


_K80 = f"{_TENSORFLOW}, Amazon EC2 p2.8xlarge"
_K80_SPREAD = f"{_TENSORFLOW}, Amazon EC2 distributed, p2.8xlarge"
_P100 = f"{_TENSORFLOW}, DGX-1"
_INCEPTION = "Inception-v3 (TensorFlow FP32, batch size 64)"
_RESNET_V1 = "ResNet-50 (TensorFlow FP32, batch size 64)"
_VGG = "VGG16 (TensorFlow FP32, batch size 32)"
_RESNET_MIXED = "ResNet-50 v1.5 (TensorFlow mixed precision, batch size 256)"
_SSD_MIXED = "SSD300 (PyTorch mixed precision, batch size 64)"
_NCF_MIXED = "NCF (PyTorch mixed precision, global batch size 1048576)"
_BERT_MIXED = "BERT-large pre-training (PyTorch mixed precision, sequence length 128, batch size 16)"
_SQUAD_MIXED = "BERT-large SQuAD (PyTorch mixed precision, batch size 10)"

_PUBLISHED = (
    _Published(_INCEPTION, "K80", NODE, 64, _K80, {1: 30.8, 2: 58.7, 4: 117, 8: 230}),
    _Published(_INCEPTION, "K80", CLUSTER, 64, _K80_SPREAD, {16: 459, 32: 902, 64: 1783}),
    _Published(_INCEPTION, "P100", NODE, 64, _P100, {1: 142, 2: 284, 4: 569, 8: 1131}),
    _Published(_RESNET_V1, "K80", NODE, 64, _K80, {1: 51.5, 2: 98.0, 4: 195, 8: 384}),
    _Published(_RESNET_V1, "K80", CLUSTER, 64, _K80_SPREAD, {16: 751, 32: 1388, 64: 2744}),
    _Published(_RESNET_V1, "P100", NODE, 64, _P100, {1: 219, 2: 422, 4: 852, 8: 1734}),
    _Published(_VGG, "K80", NODE, 32, _K80, {1: 36.3, 2: 69.4, 4: 141, 8: 260}),
    _Published(_VGG, "P100", NODE, 32, f"{_P100}, other results", {1: 144, 2: 281, 4: 549, 8: 820}),
    _Published(_RESNET_MIXED, "V100", NODE, 256, f"{_RESNET}, DGX-1 16 GB", {1: 1270, 8: 9510}),
    _Published(_RESNET_MIXED, "A100", NODE, 256, f"{_RESNET}, DGX A100 40 GB", {1: 2375, 8: 17400}),
    _Published(_SSD_MIXED, "V100", NODE, 64, f"{_SSD}, DGX-1 16 GB", {1: 322.81, 4: 1238.27, 8: 2520.50}),
    _Published(_SSD_MIXED, "A100", NODE, 64, f"{_SSD}, DGX A100 80 GB", {1: 662.91, 4: 2581.24, 8: 5252.84}),
    _Published(_NCF_MIXED, "V100", NODE, 1048576, f"{_NCF}, DGX-1 16 GB", {1: 21.84e6, 8: 95.95e6}),
    _Published(_NCF_MIXED, "A100", NODE, 1048576, f"{_NCF}, DGX A100 40 GB", {1: 34.08e6, 8: 142.90e6}),
    _Published(_BERT_MIXED, "V100", NODE, 16, _BERT, {1: 125.44, 4: 458.24, 8: 919.04}),
    _Published(_BERT_MIXED, "V100", CLUSTER, 16, f"{_BERT}, 4 and 16 machines", {32: 3089.76, 128: 12144.64}),
    _Published(_SQUAD_MIXED, "V100", NODE, 10, f"{_BERT}, fine-tuning", {1: 45.2, 4: 163.6, 8: 327.2}),
    # Published as seconds for a global step of 512 sequences: 15.614 and 7.286.
    _Published("Nemotron V3 Nano 30B (global batch size 512)", "H100", NODE, 512, _AUTOMODEL, {8: 512 / 15.614}),
    _Published("Nemotron V3 Super 120B (global batch size 512)", "H100", CLUSTER, 512, _AUTOMODEL, {64: 512 / 7.286}),
)

SHIPPED: tuple[Measurement, ...] = tuple(row for table in _PUBLISHED for row in table.rows())
