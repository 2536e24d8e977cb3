import os

os.environ["SCIPY_ARRAY_API"] = "1"  # before scikit-learn is imported: with it none of its checks is skipped

import torch

torch.set_num_threads(1)  # two test processes run side by side
