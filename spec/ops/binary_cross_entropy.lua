--- binary_cross_entropy: sample data.
return {
  gen = {x = {range = {0.1, 0.9}}, target = {range = {0.1, 0.9}}, weight = {range = {0.5, 2}}},
  calls = {
    {x = {3, 4}, target = {3, 4}}, {x = {3, 4}, target = {3, 4}, weight = {3, 4}, reduction = "sum"},
    {x = {37}, target = {37}, reduction = "none"},
  },
  empty = {{x = {0, 3}, target = {0, 3}, reduction = "sum"}}, scalar = {{x = {}, target = {}}}, smooth = true,
  grads = {"x", "target"}, magnitude = 10, special = false,
  large = {x = {317, 317}, target = {317, 317}},
  expect = {{{x = {0.5, 0.5}, target = {0, 1}}, 0.6931471805599453}},
}
