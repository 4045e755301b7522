--- scatter_add: sample data.
return {
  calls = {
    {x = {3, 4}, dim = 1, index = {shape = {2, 4}, below = 3}, src = {2, 4}},
    {x = {3, 4}, dim = -1, index = {shape = {3, 6}, below = 4, negative = true}, src = {3, 7}},
    {x = {6}, dim = 1, index = {shape = {9}, below = 6}, src = {9}},
  },
  empty = {{x = {3, 4}, dim = 1, index = {shape = {0, 4}, below = 3}, src = {0, 4}}},
  scalar = {{x = {}, dim = 1, index = {shape = {}, below = 1}, src = {}}}, smooth = true, magnitude = 10,
  large = {x = {317, 317}, dim = 1, index = {shape = {300, 317}, below = 317}, src = {300, 317}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, 3}, src = {1, 2}}, {5, 6, 10}}},
}
