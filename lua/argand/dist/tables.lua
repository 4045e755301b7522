--- tables: nested tables of tensors, walked in an order that is the same on every rank: 1, 2, … first, then names in order.
local core = require "argand.core"

local M = {}

local function refuse(owner, path, expected, value)
  core.raise("argument", owner, ("expected %s, got %s%s"):format(expected, type(value), path ~= "" and " at " .. path or ""))
end

local function path_of(path, key)
  if type(key) == "number" then return ("%s[%d]"):format(path, key) end
  return path == "" and key or path .. "." .. key
end

-- The keys in order; a key that has no order of its own is refused.
local function keys_of(owner, value, path)
  local keys, names, length = {}, {}, #value
  for i = 1, length do keys[i] = i end
  for key in pairs(value) do
    if type(key) == "string" then
      names[#names + 1] = key
    elseif type(key) ~= "number" or key < 1 or key > length or key ~= math.floor(key) then
      core.raise("argument", owner, ("expected keys 1, 2, … and names, got the key %s%s"):format(tostring(key),
        path ~= "" and " at " .. path or ""))
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do keys[#keys + 1] = name end
  return keys
end

local function walk(owner, value, fn, beside, path, inside)
  if core.is_tensor(value) or type(value) == "number" then return fn(value, beside, path) end
  if type(value) ~= "table" then refuse(owner, path, "a tensor, a number or a table of them", value) end
  if inside[value] then
    core.raise("value", owner, ("the table%s contains itself"):format(path ~= "" and " at " .. path or ""))
  end
  if beside ~= nil and type(beside) ~= "table" then refuse(owner, path, "a table of the same structure", beside) end
  inside[value] = true
  local result = {}
  for _, key in ipairs(keys_of(owner, value, path)) do
    result[key] = walk(owner, value[key], fn, beside and beside[key], path_of(path, key), inside)
  end
  inside[value] = nil
  return result
end

--- Calls fn(leaf, the value at its place in `beside`, its path) for each tensor or number, and returns the results in the same
-- structure.
---@param owner string for errors
---@param value any
---@param fn fun(leaf: any, beside: any, path: string): any
---@param beside? any
---@return any
function M.map(owner, value, fn, beside)
  return walk(owner, value, fn, beside, "", {})
end

--- The structure with each function in it replaced by what it returns.
---@param node any
---@return any
function M.finish(node)
  if type(node) == "function" then return node() end
  if type(node) ~= "table" then return node end
  local done = {}
  for _, key in ipairs(keys_of("wait", node, "")) do done[key] = M.finish(node[key]) end
  return done
end

return M
