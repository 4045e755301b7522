--- batch_norm: sample data.
return {
  gen = {x = {distinct = true}, running_var = {range = {0.5, 2}}},
  calls = {
    {x = {4, 3}, running_mean = {3}, running_var = {3}},
    {x = {4, 3}, running_mean = {3}, running_var = {3}, weight = {3}, bias = {3}, training = true},
    {x = {2, 3, 4}, weight = {3}, bias = {3}, training = true},
    {x = {2, 3, 2, 2}, running_mean = {3}, running_var = {3}, weight = {3}, training = true, momentum = 0.3},
  },
  grads = {"x", "weight", "bias"}, mutates = {"running_mean", "running_var"}, smooth = true, ulps = 32,
  tied = false, magnitude = 2,
  empty = {{x = {0, 3}, running_mean = {3}, running_var = {3}}},
  large = {x = {32, 17, 197}, weight = {17}, bias = {17}, training = true},
  expect = {
    {{x = {{1}, {3}}, training = true, eps = 0}, {{-1}, {1}}},
    {{x = {{1}, {3}}, running_mean = {1}, running_var = {4}, eps = 0}, {{0}, {1}}},
  },
}
