--- cross_entropy: sample data; labels, or probabilities in the shape of x.
local labels = {shape = {4}, below = 3}
local pixels = {shape = {2, 4}, below = 3}

return {
  gen = {weight = {range = {0.5, 2}}},
  calls = {
    {x = {4, 3}, target = labels}, {x = {4, 3}, target = labels, reduction = "sum"},
    {x = {4, 3}, target = labels, weight = {3}, label_smoothing = 0.1},
    {x = {4, 3}, target = labels, ignore_index = 2, reduction = "none"},
    {x = {2, 3, 4}, target = pixels, weight = {3}}, {x = {2, 3, 4}, target = pixels, reduction = "none"},
    {x = {3}, target = {shape = {}, below = 3}},
    {x = {4, 3}, target = {shape = {4, 3}, range = {0, 1}, special = false, dtype = "f64"}},
    {x = {4, 3}, target = labels, weight = {3}, ignore_index = 1},
    {
      x = {2, 3, 4}, target = {shape = {2, 3, 4}, range = {0, 1}, special = false, dtype = "f64"}, weight = {3},
      label_smoothing = 0.2, reduction = "sum",
    },
  },
  empty = {
    {x = {0, 3}, target = {shape = {0}, below = 3}, reduction = "sum"},
    {x = {0, 3}, target = {shape = {0}, below = 3}, reduction = "none"},
  },
  grads = {"x"}, smooth = true, magnitude = 5,
  large = {x = {317, 317}, target = {shape = {317}, below = 317}},
  expect = {
    {{x = {{0, 0}}, target = {2}}, 0.6931471805599453, dtypes = {target = "i64"}},
    {{x = {{0, 0}}, target = {{0.5, 0.5}}}, 0.6931471805599453},
  },
}
