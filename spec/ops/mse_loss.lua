--- mse_loss: sample data.
return {
  calls = {
    {x = {3, 4}, target = {3, 4}}, {x = {3, 4}, target = {3, 4}, reduction = "sum"},
    {x = {37}, target = {37}, reduction = "none"},
  },
  empty = {{x = {0, 3}, target = {0, 3}, reduction = "sum"}, {x = {0, 3}, target = {0, 3}}},
  scalar = {{x = {}, target = {}}}, smooth = true, magnitude = 20,
  large = {x = {317, 317}, target = {317, 317}}, expect = {{{x = {1, 2}, target = {3, 1}}, 2.5}},
}
