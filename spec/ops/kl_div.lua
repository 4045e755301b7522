--- kl_div: sample data.
return {
  gen = {x = {range = {-3, -0.1}}, target = {range = {0.1, 0.9}}},
  calls = {
    {x = {3, 4}, target = {3, 4}}, {x = {3, 4}, target = {3, 4}, reduction = "batchmean"},
    {x = {37}, target = {37}, reduction = "none"},
    {x = {3, 4}, target = {3, 4}, reduction = "sum", log_target = true},
  },
  empty = {{x = {0, 3}, target = {0, 3}, reduction = "sum"}}, scalar = {{x = {}, target = {}}}, smooth = true,
  magnitude = 20,
  large = {x = {317, 317}, target = {317, 317}},
  expect = {{{x = {-1, -2}, target = {1, 1}, reduction = "sum"}, 3}},
}
