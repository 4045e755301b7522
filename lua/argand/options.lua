--- Reads options tables: fills in defaults, refuses unknown names with the nearest known one, checks types.

local core = require "argand.core"

local M = {}

--- Stands for "no default": the option may be absent. `M.optional.number` and so on also fix its type.
M.optional = {}
for _, kind in ipairs { "any", "number", "string", "boolean", "table", "function" } do
  M.optional[kind] = { kind = kind }
end

local function is_optional(value)
  return type(value) == "table" and value == M.optional[value.kind]
end

-- Edit distance of two short words, one row of the table at a time.
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      local value = math.min(diagonal + cost, row[j] + 1, row[j - 1] + 1)
      diagonal, row[j] = row[j], value
    end
  end
  return row[#b]
end

--- Returns the word of a list that is nearest to `word`, nil when none is near.
---@param word string
---@param words string[]
---@return string|nil
function M.nearest(word, words)
  local best, best_distance = nil, math.max(1, math.floor(#word / 2)) + 1
  for _, candidate in ipairs(words) do
    local d = distance(word:lower(), candidate:lower())
    if d < best_distance then best, best_distance = candidate, d end
  end
  return best
end

--- Tells whether value is a number with low <= value <= high; NaN is not.
---@param value any
---@param low number
---@param high? number
---@return boolean
function M.is_between(value, low, high)
  return type(value) == "number" and value >= low and value <= (high or math.huge)
end

--- Returns the keys of a table of named fields in order.
---@param fields table<string, any>
---@return string[]
function M.sorted_names(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function refuse_unknown(owner, name, known)
  local names = M.sorted_names(known)
  local near = type(name) == "string" and M.nearest(name, names)
  local hint = near and ("did you mean '%s'?"):format(near) or ("options are: " .. table.concat(names, ", "))
  if #names == 0 then hint = "it takes no options" end
  core.raise("option", owner, ("unknown option '%s'"):format(tostring(name)), hint)
end

--- Returns the given options over the defaults. A default's type is the option's type.
---@param owner string what the options belong to, for the message
---@param given? table
---@param known table<string, any> default or `options.optional.<type>` of every option
---@return table options a fresh table
function M.read(owner, given, known)
  if given ~= nil and type(given) ~= "table" then
    core.raise("option", owner, "options: expected a table, got " .. type(given))
  end
  local result = {}
  for name, default in pairs(known) do
    if not is_optional(default) then result[name] = default end
  end
  for name, value in pairs(given or {}) do
    local default = known[name]
    if default == nil then refuse_unknown(owner, name, known) end
    local kind = is_optional(default) and default.kind or type(default)
    if kind ~= "any" and type(value) ~= kind then
      core.raise("option", owner, ("%s: expected %s, got %s"):format(name, kind, type(value)))
    end
    result[name] = value
  end
  return result
end

return M
