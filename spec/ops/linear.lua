--- linear: sample data.
return {
  calls = {
    {x = {3, 4}, weight = {5, 4}, bias = {5}}, {x = {2, 3, 4}, weight = {5, 4}},
    {x = {4}, weight = {5, 4}, bias = {5}},
    {x = {3, 4}, weight = {5, 4}, bias = {5}, activation = "gelu"},
    {x = {3, 4}, weight = {5, 4}, bias = {5}, activation = "relu"},
  },
  empty = {{x = {0, 4}, weight = {5, 4}, bias = {5}}, {x = {2, 0}, weight = {5, 0}, bias = {5}}}, smooth = true,
  magnitude = 10,
  large = {x = {131, 317}, weight = {127, 317}, bias = {127}},
  expect = {{{x = {{1, 2}}, weight = {{3, 4}, {-5, -6}}, bias = {1, 1}, activation = "relu"}, {{12, 0}}}},
}
