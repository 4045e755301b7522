--- index_copy: sample data.
return {
  calls = {
    {x = {5, 4}, dim = 1, index = {shape = {3}, below = 5, unique = true}, source = {3, 4}},
    {x = {3, 4}, dim = -1, index = {shape = {2}, below = 4, unique = true}, source = {3, 2}},
  },
  empty = {
    {x = {3, 4}, dim = 1, index = {shape = {0}, below = 3}, source = {0, 4}},
    {x = {0, 4}, dim = 2, index = {shape = {2}, below = 4}, source = {0, 2}},
  },
  smooth = true,
  large = {x = {317, 317}, dim = 1, index = {shape = {200}, below = 317, unique = true}, source = {200, 317}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, -3}, source = {1, 2}}, {2, 6, 1}}},
}
