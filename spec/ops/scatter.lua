--- scatter: sample data.
return {
  calls = {
    {x = {3, 4}, dim = 1, index = {shape = {1, 4}, below = 3}, src = {2, 4}},
    {x = {3, 4}, dim = -1, index = {shape = {3, 1}, below = 4, negative = true}, src = {3, 1}},
    {x = {6}, dim = 1, index = {shape = {4}, below = 6, unique = true}, src = {4}},
  },
  empty = {{x = {3, 4}, dim = 1, index = {shape = {0, 4}, below = 3}, src = {0, 4}}},
  scalar = {{x = {}, dim = 1, index = {shape = {}, below = 1}, src = {}}}, smooth = true,
  large = {x = {100003}, dim = 1, index = {shape = {90001}, below = 100003, unique = true}, src = {90001}},
  expect = {{{x = {5, 6, 7}, dim = 1, index = {3, 1}, src = {1, 2}}, {2, 6, 1}}}, index_layouts = false,
}
