--- index_select: sample data.
return {
  calls = {
    {x = {3, 4}, dim = 1, index = {shape = {5}, below = 3}},
    {x = {3, 4}, dim = -1, index = {shape = {2}, below = 4, negative = true}},
    {x = {2, 3, 4}, dim = 2, index = {shape = {4}, below = 3}},
  },
  empty = {
    {x = {3, 4}, dim = 1, index = {shape = {0}, below = 3}},
    {x = {0, 4}, dim = 2, index = {shape = {2}, below = 4}},
  },
  smooth = true,
  large = {x = {317, 317}, dim = 1, index = {shape = {317}, below = 317}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, 1, -1}}, {7, 5, 7}}},
}
