--- index_add: sample data.
return {
  calls = {
    {x = {3, 4}, dim = 1, index = {shape = {5}, below = 3}, source = {5, 4}},
    {x = {3, 4}, dim = -1, index = {shape = {2}, below = 4, negative = true}, source = {3, 2}, alpha = 2},
    {x = {2, 3, 4}, dim = 2, index = {shape = {4}, below = 3}, source = {2, 4, 4}},
  },
  empty = {
    {x = {3, 4}, dim = 1, index = {shape = {0}, below = 3}, source = {0, 4}},
    {x = {0, 4}, dim = 2, index = {shape = {2}, below = 4}, source = {0, 2}},
  },
  smooth = true, magnitude = 10,
  large = {x = {317, 317}, dim = 1, index = {shape = {317}, below = 317}, source = {317, 317}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, 3}, source = {1, 2}, alpha = 2}, {5, 6, 13}}},
}
